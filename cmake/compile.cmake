# How a file is compiled: through the cache if there is one.

# The cache hits in any folder: paths below the source tree are relative in its key, the working directory is not in
# it. Said here, so that nobody's own settings are needed.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
