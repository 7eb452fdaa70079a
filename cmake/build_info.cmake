# Writes OUT, the file that says what is built, from the commit of SOURCE. Run at every build; the file is touched only
# if its text changes, so a new commit compiles one file and links one program. Without git: "unknown".
find_program(GIT git)
set(COMMIT "unknown")
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE head
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  execute_process(COMMAND ${GIT} -C ${SOURCE} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
  if(NOT failed)
    set(COMMIT ${head})
    if(changes)
      set(COMMIT "${head}, with changes")
    endif()
  endif()
endif()
configure_file(${SOURCE}/cmake/build_info.cc.in ${OUT} @ONLY)
