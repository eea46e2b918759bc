//===- BuildId.cpp - what identifies this build of the library ------------===//
#include "flash/Runtime/BuildId.h"

#include "llvm/ADT/StringExtras.h"

#include <link.h>

using llvm::StringRef;

/// The build id among the notes of a segment, or nothing.
static StringRef buildIdOf(StringRef notes) {
  auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    auto *note = reinterpret_cast<const ElfW(Nhdr) *>(notes.data());
    StringRef rest = notes.drop_front(sizeof *note);
    StringRef id = rest.drop_front(std::min(rest.size(), padded(note->n_namesz)));
    if (note->n_type == NT_GNU_BUILD_ID && rest.starts_with("GNU"))
      return id.take_front(note->n_descsz);
    notes = id.drop_front(std::min(id.size(), padded(note->n_descsz)));
  }
  return {};
}

/// The linker's build id of the object that holds this function, in hexadecimal.
static std::string readBuildId() {
  std::string found;
  auto visit = [](dl_phdr_info *object, size_t, void *into) {
    auto address = reinterpret_cast<uintptr_t>(&readBuildId);
    bool ours = false;
    StringRef id;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr) &segment = object->dlpi_phdr[i];
      uintptr_t start = object->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD)
        ours |= address - start < segment.p_memsz;
      if (segment.p_type == PT_NOTE && id.empty())
        id = buildIdOf({reinterpret_cast<const char *>(start), segment.p_memsz});
    }
    if (ours)
      *static_cast<std::string *>(into) = llvm::toHex(id, /*LowerCase=*/true);
    return int(ours);
  };
  dl_iterate_phdr(visit, &found);
  return found;
}

const std::string &flash::buildId() {
  static const std::string id = readBuildId();
  return id;
}
