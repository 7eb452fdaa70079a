# Batches: several files of a folder in one run of the compiler, which then reads their headers and makes their templates once.
#
# What is batched compiles in a good half of the time; a change of one file compiles its neighbours too. The release preset has it. The others
# do not, so daily work compiles what it changed, and the gate's clang knows that every file compiles alone.
option(MORAINE_BATCHES "compile several files of a folder at once" OFF)

# Whose files have no two things of one name, in anonymous namespaces neither. A folder joins when its have none; the loops of kernels and
# optim would gain nothing.
set(MORAINE_BATCHED
    base chaos cli data eval infer machine model plan server study supervisor tensor testing train
    base_test cli_test eval_test faults_test plan_test ranks_test resume_test serve_test server_test study_test supervisor_test
    testing_test train_test)
set(MORAINE_BATCH 8)  # files: some 90 runs of the compiler, work for many cores

# Replaces the files of a list, which is given by its name, by batches of them. Files with options of their own stay alone.
function(moraine_batches name list)
  if(NOT MORAINE_BATCHES OR NOT name IN_LIST MORAINE_BATCHED)
    return()
  endif()
  set(files)
  set(together)
  foreach(source ${${list}})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(options OR definitions)
      list(APPEND files ${source})
    else()
      list(APPEND together ${source})
    endif()
  endforeach()
  list(LENGTH together count)
  set(number 0)
  while(number LESS count)
    list(SUBLIST together ${number} ${MORAINE_BATCH} batch)
    set(text "")
    foreach(source ${batch})
      file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${source})
      string(REGEX REPLACE "^src/" "" path "${path}")  # the same text in any folder, so that the compiler's cache hits
      string(APPEND text "#include \"${path}\"\n")
    endforeach()
    set(file ${CMAKE_BINARY_DIR}/batches/${name}_${number}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    # g++ warns of members with types of anonymous namespaces where the file is not the compiler's first.
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    list(APPEND files ${file})
    math(EXPR number "${number} + ${MORAINE_BATCH}")
  endwhile()
  set(${list} ${files} PARENT_SCOPE)
endfunction()
