# What the gate runs beside the tests of the code: the checks of text.
# Included at the end of CMakeLists.txt: it adds to targets that are there.

# The checks of text are tests like any other, so that the runner's summary counts them.
if(MORAINE_TESTS)
  foreach(check layers sizes types format docs)
    add_test(NAME check.${check} COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_${check}.sh)
    set_tests_properties(check.${check} PROPERTIES LABELS check SKIP_RETURN_CODE 77)
  endforeach()
endif()
