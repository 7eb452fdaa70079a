// SharedLibrary: fails if a library whose file is cut reaches the loader, which the process does not survive, if a
// whole one is refused, or if the file is named twice.
#include "base/shared_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/test_folder.h"

namespace moraine {
namespace {

// A file of `bytes` whose one segment ends at byte `end`; it has nothing that a loader could use.
std::string library_of(size_t bytes, uint64_t end) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment = {};
  segment.p_type = PT_LOAD;
  segment.p_offset = 4096;
  segment.p_filesz = end - segment.p_offset;
  std::string file(bytes, '\0');
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + sizeof header, &segment, sizeof segment);
  return file;
}

TEST(SharedLibrary, AFileThatIsCutIsNotOpened) {
  const testing::TestFolder folder;
  folder.write("cut.so", library_of(8191, 8192));
  EXPECT_EQ(open_library(folder.file("cut.so")).why,
            "the file is cut: it has 8191 bytes, its segments 8192");
  folder.write("huge.so", library_of(8192, 4095));  // past the last number
  EXPECT_EQ(open_library(folder.file("huge.so")).why,
            "the file is cut: it has 8192 bytes, its segments 18446744073709551615");
  folder.write("whole.so", library_of(8192, 8192));
  const std::string said = open_library(folder.file("whole.so")).why;  // the loader's
  EXPECT_FALSE(said.empty());
  EXPECT_EQ(said.find("cut"), std::string::npos) << said;
}

TEST(SharedLibrary, OneThatIsThereOpensAndOneThatIsNotIsNamedByTheCallerAlone) {
  const OpenedLibrary found = open_library("libc.so.6");
  ASSERT_NE(found.handle, nullptr) << found.why;
  EXPECT_NE(dlsym(found.handle, "malloc"), nullptr);
  for (const char* file : {"libno-such.so.2", "./no/such.so"}) {
    const OpenedLibrary missing = open_library(file);
    EXPECT_EQ(missing.handle, nullptr);
    EXPECT_EQ(missing.why, "cannot open shared object file: No such file or directory");
  }
}

}  // namespace
}  // namespace moraine
