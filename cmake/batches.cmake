# Batches: several files of a folder in one run of the compiler, which then reads their headers and makes their templates once.
#
# What is batched compiles in a good half of the time; a change of one file compiles its neighbours too. The release preset has it. The others
# do not, so daily work compiles what it changed, and the gate's clang knows that every file compiles alone.
#
# So no two things of a folder have one name, in anonymous namespaces neither (scripts/check_types.sh), and whoever uses googletest's names
# says ::testing.
option(MORAINE_BATCHES "compile several files of a folder at once" OFF)
set(MORAINE_BATCH 8)  # files: some 90 runs of the compiler, work for many cores

# Replaces the files of a list, which is given by its name, by batches of them. What stays alone: files with options of their own; loops,
# which Highway compiles once for each instruction set and which gain nothing; what a macro compiles for both sizes of waves.
function(moraine_batches name list)
  if(NOT MORAINE_BATCHES)
    return()
  endif()
  set(files)
  set(together)
  set(has_loops OFF)
  foreach(source ${${list}})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    file(STRINGS ${source} several_times REGEX "hwy/foreach_target.h|define MR_GPU_WAVE" LIMIT_COUNT 1)
    if(several_times)
      set(has_loops ON)
    endif()
    if(options OR definitions OR several_times)
      list(APPEND files ${source})
    else()
      list(APPEND together ${source})
    endif()
  endforeach()
  if(has_loops)  # a file of this folder may become one of them, or one of the others
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${${list}})
  endif()
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
