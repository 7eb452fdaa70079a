// SuperviseSlurm: a supervised run as a job of a real Slurm, which loses a rank, an agent, its time and a node.
//
// Breaks if deploy/supervise_slurm.sbatch does not start, end or go on as it says, or if a loss is in the answer.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "base/test_folder.h"
#include "testing/places.h"
#include "tests/program.h"
#include "tests/tiny_run.h"

namespace moraine {
namespace {

using namespace testing;

TEST(SuperviseSlurm, ARunEndsInTheQuietHashWhateverItsJobLoses) {
  constexpr int kNotHere = 77;
  const TestFolder folder;
  const TinyRun tiny{folder.path()};
  write_file(folder.file("run.toml"),
             tiny.toml("[train]\nslots = 4\nsequence = 32\nbatch_tokens = 256\nthreads = 1\n"
                       "dtype = \"f32\"\nsteps = 1000\n[checkpoint]\nevery_steps = 100\n"
                       "[parallel]\nreplace_seconds = 30\n[supervise]\nhost_seconds = 2.0\n"));
  const std::string said = folder.file("said");
  const int status = std::system(fmt::format("{} {} {} {} >{} 2>&1",
                                             source_path("tools/slurm_trial.sh"), moraine_program(),
                                             folder.file("run.toml"), folder.file("trial"), said)
                                     .c_str());
  const std::string text = posix_file_system().read(said);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotHere)
    GTEST_SKIP() << "NOT TESTED: a job of Slurm: " << text;
  EXPECT_EQ(status, 0) << text;
}

}  // namespace
}  // namespace moraine
