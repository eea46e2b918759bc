//===- CAPI.cpp - the C API of libflashc.so -------------------------------===//
//
// A thin shell: pointers are checked here, everything else is the runtime's.
//
//===----------------------------------------------------------------------===//
#include "flash-c/Flash.h"
#include "flash/Runtime/Assembler.h"
#include "flash/Runtime/BuildId.h"
#include "flash/Runtime/Program.h"
#include "flash/Schedule/Explain.h"

#include <cstdlib>
#include <cstring>

using namespace flash;

struct FlashProgram {
  std::unique_ptr<Program> program;
};

/// Hands `value` to the caller, who frees it.
static void give(FlashBytes *text, const std::string &value) {
  if (!text)
    return;
  *text = {static_cast<char *>(std::malloc(value.size() + 1)), value.size()};
  if (text->data)
    std::memcpy(text->data, value.c_str(), value.size() + 1);
  else
    text->size = 0;
}

static FlashStatus refuse(FlashBytes *text, const Failure &failure) {
  give(text, failure.sentence);
  switch (failure.kind) {
  case Failure::invalid:
    return FLASH_INVALID;
  case Failure::notBuilt:
    return FLASH_NOT_BUILT;
  case Failure::internal:
    return FLASH_INTERNAL;
  }
  return FLASH_INTERNAL;
}

static FlashStatus done(FlashBytes *text) {
  if (text)
    *text = {nullptr, 0};
  return FLASH_OK;
}

static FlashStatus finish(const Outcome &outcome, FlashBytes *text) {
  return outcome ? refuse(text, *outcome) : done(text);
}

/// What `then` makes of the result, or why there is none.
template <class T, class Then> static FlashStatus with(Or<T> result, FlashBytes *text, Then then) {
  if (auto *failure = std::get_if<Failure>(&result))
    return refuse(text, *failure);
  return then(std::get<T>(result));
}

static FlashStatus finish(Or<std::string> result, FlashBytes *text) {
  return with(std::move(result), text, [&](const std::string &value) {
    give(text, value);
    return FLASH_OK;
  });
}

static FlashStatus finish(Or<std::unique_ptr<Program>> result, FlashProgram **program,
                          FlashBytes *text) {
  *program = nullptr;
  return with(std::move(result), text, [&](std::unique_ptr<Program> &made) {
    *program = new FlashProgram{std::move(made)};
    return done(text);
  });
}

static FlashStatus missing(const char *what, FlashBytes *text) {
  return refuse(text, invalid(std::string("expected ") + what + ", got a null pointer"));
}

/// The operands of a call by name.
static Or<Operands> operandsOf(const FlashTensor *tensors, size_t count) {
  Operands operands;
  for (size_t i = 0; i < count; ++i) {
    auto operand = tensors[i].name ? parseOperand(tensors[i].name) : std::nullopt;
    if (!operand)
      return invalid("a call has no operand '" +
                     std::string(tensors[i].name ? tensors[i].name : "") + "'");
    operands[*operand] = &tensors[i];
  }
  return operands;
}

const char *flash_version(void) { return FLASH_VERSION; }

void flash_free(void *data) { std::free(data); }

FlashStatus flash_key(const char *problem, FlashBytes *text) {
  if (!problem)
    return missing("a problem", text);
  return with(readRequest(problem), text, [&](const Request &r) {
    const std::string on = r.problem.target == schedule::Target::cpu
                               ? " processor " + CpuProgram::processorName()
                               : " ptxas " + findAssembler().version;
    return finish(keyOf(r) + " compiler " FLASH_VERSION " " + buildId() + on, text);
  });
}

FlashStatus flash_explain(const char *problem, int json, FlashBytes *text) {
  if (!problem)
    return missing("a problem", text);
  return with(readRequest(problem), text, [&](const Request &r) {
    if (r.merge)
      return refuse(text, invalid("expected an attention to explain, a merge has no plan"));
    if (Outcome failure = Program::refuse(r))
      return refuse(text, *failure);
    return finish(schedule::explain(r.problem, r.plan, json != 0), text);
  });
}

FlashStatus flash_ptxas(const char *path, FlashBytes *text) {
  if (path)
    if (Outcome failure = useAssembler(path))
      return refuse(text, *failure);
  return finish(findAssembler().version, text);
}

FlashStatus flash_compile(const char *problem, FlashProgram **program, FlashBytes *text) {
  if (!problem || !program)
    return missing(problem ? "a place for the program" : "a problem", text);
  return finish(Program::compile(problem), program, text);
}

FlashStatus flash_assemble(FlashProgram *program, FlashBytes *text) {
  if (!program)
    return missing("a program", text);
  return finish(program->program->assemble(), text);
}

FlashStatus flash_program_text(const FlashProgram *program, const char *part, FlashBytes *text) {
  if (!program || !part)
    return missing(program ? "a part" : "a program", text);
  if (std::strcmp(part, "blob") == 0)
    return finish(program->program->blob(), text);
  return finish(program->program->part(part), text);
}

FlashStatus flash_program_load(const void *blob, size_t size, FlashProgram **program,
                               FlashBytes *text) {
  if (!blob || !program)
    return missing(blob ? "a place for the program" : "a blob", text);
  return finish(Program::load(std::string(static_cast<const char *>(blob), size)), program, text);
}

void flash_program_free(FlashProgram *program) { delete program; }

FlashStatus flash_run(FlashProgram *program, const FlashTensor *tensors, size_t count,
                      const FlashScalars *scalars, int workers, FlashBytes *text) {
  if (!program || !tensors || !scalars)
    return missing("a program, tensors and scalars", text);
  return with(operandsOf(tensors, count), text, [&](const Operands &operands) {
    return finish(program->program->run(operands, *scalars, workers), text);
  });
}

FlashStatus flash_workspace(FlashProgram *program, const FlashTensor *tensors, size_t count,
                            const FlashScalars *scalars, int device, size_t *bytes,
                            FlashBytes *text) {
  if (!program || !tensors || !scalars || !bytes)
    return missing("a program, tensors, scalars and a place for the bytes", text);
  return with(operandsOf(tensors, count), text, [&](const Operands &operands) {
    return with(program->program->workspaceBytes(operands, *scalars, device), text,
                [&](int64_t needed) {
                  *bytes = size_t(needed);
                  return done(text);
                });
  });
}

FlashStatus flash_launch(FlashProgram *program, const FlashTensor *tensors, size_t count,
                         const FlashScalars *scalars, int device, void *stream, FlashBytes *text) {
  if (!program || !tensors || !scalars)
    return missing("a program, tensors and scalars", text);
  return with(operandsOf(tensors, count), text, [&](const Operands &operands) {
    return finish(program->program->launch(operands, *scalars, device, stream), text);
  });
}

FlashStatus flash_counters(FlashProgram *program, int device, void **data, size_t *bytes,
                           FlashBytes *text) {
  if (!program || !data || !bytes)
    return missing("a program and places for the address and the bytes", text);
  return with(program->program->counters(device), text, [&](const cuda::Loaded::Bytes &found) {
    *data = found.data, *bytes = found.size;
    return done(text);
  });
}

FlashStatus flash_prepare(FlashProgram *program, const FlashTensor *tensors, size_t count,
                          const FlashScalars *scalars, int device, void *stream, FlashBytes *text) {
  if (!program || !tensors || !scalars)
    return missing("a program, tensors and scalars", text);
  Or<Operands> operands = operandsOf(tensors, count);
  if (auto *failure = std::get_if<Failure>(&operands))
    return refuse(text, *failure);
  return finish(program->program->prepare(std::get<Operands>(operands), *scalars, device, stream),
                text);
}
