//===- Program.cpp - a compiled problem: its parts, and its blob ----------===//
#include "flash/Runtime/Program.h"

#include "flash/Runtime/Assembler.h"
#include "flash/Runtime/BuildId.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace flash;
using llvm::StringRef;
namespace json = llvm::json;

Program::Program(Request asked) : request(std::move(asked)), mlir(opText(request)) {}

void Program::loadImage() {
  loaded = std::make_unique<cuda::Loaded>(
      kernels, cuda::Capability(schedule::targetName(request.problem.target)), ptx, cubin,
      request.problem.element);
}

Outcome Program::assemble() {
  Assembler assembler = findAssembler();
  if (!onGpu() || assembler.path.empty() || !cubin.empty())
    return {};
  Or<Assembled> made =
      flash::assemble(assembler, ptx, std::string(schedule::targetName(request.problem.target)));
  if (auto *failure = std::get_if<Failure>(&made))
    return *failure;
  cubin = std::move(std::get<Assembled>(made).cubin);
  report = std::move(std::get<Assembled>(made).report);
  loadImage();
  return {};
}

Or<std::string> Program::part(const std::string &name) const {
  if (name == "mlir")
    return mlir;
  if (name == "plan")
    return request.planText;
  if (name == "metadata")
    return metadata;
  if (name == "ptx")
    return ptx;
  if (name == "cubin")
    return cubin;
  if (name == "report")
    return report;
  return invalid("a program has no part '" + name +
                 "'; expected mlir, plan, metadata, ptx, cubin, report or blob");
}

// A blob is a line of JSON that says which build made it, how long each section is and what they
// and their sizes hash to; and the sections one behind the other.
static std::string blobHeader(json::Array sizes, StringRef sections) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << json::Value(json::Array(sizes));
  const std::string hash = llvm::utohexstr(llvm::xxh3_64bits(text + sections.str()));
  text.clear();
  os << json::Value(
      json::Object{{"build", buildId()}, {"hash", hash}, {"sizes", std::move(sizes)}});
  return text;
}

std::string Program::blob() const {
  static const CpuProgram::Saved none;
  const CpuProgram::Saved &code = cpu ? cpu->saved() : none;
  json::Array sizes;
  std::string sections;
  for (const std::string *section :
       {&request.text, &metadata, &ptx, &cubin, &report, &code.description, &code.object}) {
    sizes.push_back(int64_t(section->size()));
    sections += *section;
  }
  return blobHeader(std::move(sizes), sections) + '\n' + sections;
}

Or<std::unique_ptr<Program>> Program::load(const std::string &blob) {
  Failure broken = invalid("expected a program's blob made by this build");
  auto [header, rest] = StringRef(blob).split('\n');
  auto parsed = llvm::expectedToOptional(json::parse(header));
  const json::Object *object = parsed ? parsed->getAsObject() : nullptr;
  const json::Array *sizes = object ? object->getArray("sizes") : nullptr;
  std::string sections[7];
  if (!sizes || sizes->size() != std::size(sections) || header != blobHeader(*sizes, rest))
    return broken;
  for (auto [section, size] : llvm::zip(sections, *sizes)) {
    const size_t bytes = size.getAsInteger().value_or(0);
    section = rest.take_front(bytes).str();
    rest = rest.drop_front(section.size());
  }
  Or<Request> request = readRequest(sections[0]);
  if (std::holds_alternative<Failure>(request))
    return broken;
  std::unique_ptr<Program> program(new Program(std::move(std::get<Request>(request))));
  program->metadata = sections[1];
  program->ptx = sections[2];
  program->cubin = sections[3];
  program->report = sections[4];
  if (program->readMetadata())
    return broken;
  if (!program->onGpu()) {
    auto loaded = llvm::expectedToOptional(CpuProgram::load({sections[5], sections[6]}));
    if (!loaded)
      return broken;
    program->cpu = std::move(*loaded);
  }
  return program;
}
