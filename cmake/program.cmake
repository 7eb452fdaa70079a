# What the program says of itself: version and commit, manual pages, completion of shells.
#   man_pages, completions   build/<preset>/share/..., made by the program from the declarations of its flags
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(instruction_sets "baseline, avx2, avx512, avx512bf16, amx")
else()
  set(instruction_sets "baseline, neon")
endif()
set(build_info ${CMAKE_BINARY_DIR}/build_info.cc)
add_custom_target(build_info
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUT=${build_info} -DVERSION=${PROJECT_VERSION}
          "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" "-DBUILD_TYPE=${CMAKE_BUILD_TYPE}"
          "-DINSTRUCTION_SETS=${instruction_sets}" -P ${CMAKE_SOURCE_DIR}/cmake/build_info.cmake
  BYPRODUCTS ${build_info} COMMENT "" VERBATIM)
target_sources(moraine PRIVATE ${build_info})
add_dependencies(moraine build_info)

set(share ${CMAKE_BINARY_DIR}/share)
add_custom_target(man_pages ALL DEPENDS ${share}/man/man1/moraine.1)
add_custom_command(OUTPUT ${share}/man/man1/moraine.1
  COMMAND moraine man --out ${share}/man/man1 DEPENDS moraine COMMENT "manual pages" VERBATIM)
add_custom_target(completions ALL DEPENDS ${share}/bash-completion/completions/moraine)
add_custom_command(OUTPUT ${share}/bash-completion/completions/moraine ${share}/zsh/vendor-completions/_moraine
  COMMAND moraine completion bash --out ${share}/bash-completion/completions/moraine
  COMMAND moraine completion zsh --out ${share}/zsh/vendor-completions/_moraine
  DEPENDS moraine COMMENT "completion of bash and zsh" VERBATIM)
# Whoever built the program alone installs it with its pages: they are made then, if they are not there.
install(CODE "
  if(NOT EXISTS \"${share}/man/man1/moraine.1\" OR NOT EXISTS \"${share}/bash-completion/completions/moraine\")
    execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${CMAKE_BINARY_DIR}\" --target man_pages completions COMMAND_ERROR_IS_FATAL ANY)
  endif()")
include(GNUInstallDirs)
install(DIRECTORY ${share}/man/man1/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${share}/bash-completion/completions/moraine DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${share}/zsh/vendor-completions/_moraine DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
