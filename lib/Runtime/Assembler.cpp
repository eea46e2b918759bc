//===- Assembler.cpp - ptxas as a process ---------------------------------===//
#include "flash/Runtime/Assembler.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

#include <cstdlib>
#include <fstream>
#include <mutex>

using namespace flash;
using llvm::StringRef;

namespace {

/// Files that are gone at the end.
struct Scratch {
  ~Scratch() {
    for (const std::string &path : paths)
      llvm::sys::fs::remove(path);
  }
  std::string make(StringRef suffix) {
    llvm::SmallString<128> path;
    if (llvm::sys::fs::createTemporaryFile("flash", suffix, path))
      return {};
    paths.push_back(std::string(path));
    return paths.back();
  }
  std::vector<std::string> paths;
};

std::string contents(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// Runs a program; its output, or why it failed.
Or<std::string> run(StringRef program, llvm::ArrayRef<StringRef> arguments, Scratch &scratch) {
  std::string log = scratch.make("log"), why;
  if (log.empty())
    return internal("no temporary file could be made; set TMPDIR to a folder that can be written");
  llvm::SmallVector<StringRef> all = {program};
  all.append(arguments.begin(), arguments.end());
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
  int status = llvm::sys::ExecuteAndWait(program, all, std::nullopt, redirects, 0, 0, &why);
  std::string output = contents(log);
  if (status == 0)
    return output;
  return internal(program.str() + " failed: " + (output.empty() ? why : output));
}

/// The version in the last line of `ptxas --version`, "cuda_13.0.r13.0/compiler.36424714_0".
Or<Assembler> assemblerAt(const std::string &path) {
  Scratch scratch;
  Or<std::string> said = run(path, {"--version"}, scratch);
  if (auto *failure = std::get_if<Failure>(&said))
    return *failure;
  StringRef text = StringRef(std::get<std::string>(said)).trim();
  if (!text.contains("assembler"))
    return invalid("expected ptxas at " + path + ", it says: " + text.take_front(80).str());
  return Assembler{path, text.rsplit('\n').second.trim().rsplit(' ').second.str()};
}

Assembler search() {
  std::vector<std::string> places;
  if (const char *named = std::getenv("FLASH_PTXAS")) {
    if (StringRef(named) != "none")
      places.push_back(named);
  } else {
    if (auto found = llvm::sys::findProgramByName("ptxas"))
      places.push_back(*found);
    places.push_back("/usr/local/cuda/bin/ptxas");
  }
  for (const std::string &place : places) {
    if (!llvm::sys::fs::can_execute(place))
      continue;
    Or<Assembler> found = assemblerAt(place);
    if (auto *assembler = std::get_if<Assembler>(&found))
      return *assembler;
  }
  return {};
}

std::mutex mutex;
std::optional<Assembler> current;

} // namespace

Assembler flash::findAssembler() {
  std::lock_guard<std::mutex> lock(mutex);
  if (!current)
    current = search();
  return *current;
}

Outcome flash::useAssembler(const std::string &path) {
  Or<Assembler> found = assemblerAt(path);
  if (auto *failure = std::get_if<Failure>(&found))
    return invalid(failure->sentence);
  std::lock_guard<std::mutex> lock(mutex);
  current = std::get<Assembler>(found);
  return {};
}

/// What ptxas says, without what differs from run to run.
static std::string withoutTimes(StringRef said) {
  std::string lines;
  for (StringRef line : llvm::split(said, '\n'))
    if (!line.empty() && !line.contains("Compile time"))
      lines += line.str() + '\n';
  return lines;
}

Or<Assembled> flash::assemble(const Assembler &assembler, const std::string &ptx,
                              const std::string &arch) {
  Scratch scratch;
  std::string source = scratch.make("ptx"), cubin = scratch.make("cubin");
  std::ofstream out(source, std::ios::binary);
  out << ptx;
  out.close();
  if (source.empty() || cubin.empty() || !out)
    return internal("no temporary file could be written; set TMPDIR to a folder with room");
  std::string target = "-arch=" + arch;
  Or<std::string> said = run(assembler.path, {"-v", target, "-o", cubin, source}, scratch);
  if (auto *failure = std::get_if<Failure>(&said))
    return *failure;
  return Assembled{contents(cubin), withoutTimes(std::get<std::string>(said))};
}
