//===- Metadata.cpp - what a launcher has to know of kernels, as JSON -----===//
#include "flash/Runtime/Program.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace flash;
using llvm::StringRef;
namespace json = llvm::json;

static json::Value jsonOf(mlir::Attribute attribute) {
  if (auto text = llvm::dyn_cast<mlir::StringAttr>(attribute))
    return text.getValue();
  if (auto integer = llvm::dyn_cast<mlir::IntegerAttr>(attribute))
    return integer.getInt();
  if (auto array = llvm::dyn_cast<mlir::ArrayAttr>(attribute)) {
    json::Array all;
    for (mlir::Attribute each : array)
      all.push_back(jsonOf(each));
    return all;
  }
  json::Object object;
  for (mlir::NamedAttribute field : llvm::dyn_cast<mlir::DictionaryAttr>(attribute))
    object[field.getName().strref()] = jsonOf(field.getValue());
  return object;
}

void Program::writeMetadata(mlir::ModuleOp module) {
  json::Array all;
  for (auto function : module.getOps<mlir::FunctionOpInterface>()) {
    if (!function->hasAttr("flash.kernel"))
      continue;
    json::Object kernel{{"name", function.getName()},
                        {"follows", function->hasAttr("flash.follows")}};
    for (StringRef field : {"op", "threads", "shared_bytes", "cluster", "params"})
      if (mlir::Attribute value = function->getAttr(("flash." + field).str()))
        kernel[field] = jsonOf(value);
    all.push_back(std::move(kernel));
  }
  json::Object about{{"target", StringRef(schedule::targetName(request.problem.target))},
                     {"plan", request.planText},
                     {"kernels", std::move(all)}};
  metadata = llvm::formatv("{0:2}", json::Value(std::move(about))).str();
}

static std::optional<cuda::Param> paramOf(const json::Object &entry) {
  StringRef kind = entry.getString("kind").value_or(""), arg = entry.getString("arg").value_or("");
  cuda::Param p;
  p.dim = entry.getInteger("dim").value_or(0);
  p.rows = entry.getInteger("rows").value_or(0);
  p.group = entry.getInteger("group").value_or(1);
  for (auto [name, kind] : {std::pair{"scale", cuda::Param::scale},
                            {"softcap", cuda::Param::softcap},
                            {"section", cuda::Param::section},
                            {"max_seqlen_q", cuda::Param::longest},
                            {"appended", cuda::Param::appended},
                            {"max_splits", cuda::Param::maxSplits},
                            {"sms", cuda::Param::sms}})
    if (arg == name) {
      p.kind = kind;
      return p;
    }
  if (kind == "counter") {
    p.kind = cuda::Param::counter;
    return p;
  }
  auto operand = parseOperand(arg);
  if (!operand)
    return std::nullopt;
  p.operand = *operand;
  if (kind == "tensor_map")
    p.kind = cuda::Param::tensorMap;
  else if (kind == "pointer")
    p.kind = cuda::Param::pointer;
  else if (kind == "size")
    p.kind = cuda::Param::size;
  else if (kind == "stride")
    p.kind = cuda::Param::stride;
  else
    return std::nullopt;
  if (p.dim < 0 || p.dim >= FLASH_MAX_RANK)
    return std::nullopt;
  return p;
}

Outcome Program::readMetadata() {
  static const json::Array none;
  Failure broken = internal("the kernel's description is not one: " + metadata);
  auto parsed = llvm::expectedToOptional(json::parse(metadata));
  const json::Object *object = parsed ? parsed->getAsObject() : nullptr;
  const json::Array *all = object ? object->getArray("kernels") : nullptr;
  if (!all || all->empty())
    return broken;
  for (const json::Value &value : *all) {
    const json::Object *entry = value.getAsObject();
    const json::Array *params = entry ? entry->getArray("params") : nullptr;
    if (!entry || onGpu() != bool(params))
      return broken;
    cuda::Kernel kernel;
    kernel.name = entry->getString("name").value_or("").str();
    kernel.op = entry->getString("op").value_or("").str();
    kernel.follows = entry->getBoolean("follows").value_or(false);
    kernel.threads = entry->getInteger("threads").value_or(0);
    kernel.sharedBytes = entry->getInteger("shared_bytes").value_or(0);
    kernel.cluster = entry->getInteger("cluster").value_or(1);
    for (const json::Value &each : params ? *params : none) {
      auto param = each.getAsObject() ? paramOf(*each.getAsObject()) : std::nullopt;
      if (!param)
        return broken;
      kernel.params.push_back(*param);
    }
    kernels.push_back(std::move(kernel));
  }
  if (onGpu())
    loadImage();
  return {};
}
