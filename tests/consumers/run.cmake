# Configures, builds and runs the project NAME in this folder the way its user would.
cmake_minimum_required(VERSION 3.21)

function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${out}")
  endif()
endfunction()

set(work ${BUILD}/${NAME})
set(settings -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=)
file(REMOVE_RECURSE ${work})

if(NAME STREQUAL "find_package")
  run(${CMAKE_COMMAND} -S ${ROOT} -B ${work}/package ${settings} -D RAG_RETRIEVE_USE_ICU=${ICU}
      -D RAG_RETRIEVE_BUILD_TESTS=OFF -D RAG_RETRIEVE_BUILD_EXAMPLES=OFF)
  run(${CMAKE_COMMAND} --install ${work}/package --prefix ${work}/installed)
  list(APPEND settings -D CMAKE_PREFIX_PATH=${work}/installed)
else()
  list(APPEND settings -D RAG_RETRIEVE_ROOT=${ROOT} -D RAG_RETRIEVE_USE_ICU=${ICU})
endif()
if(NAME STREQUAL "exported_library")
  list(APPEND settings -D RAG_RETRIEVE_INSTALL=ON)
endif()

run(${CMAKE_COMMAND} -S ${ROOT}/tests/consumers/${NAME} -B ${work}/build ${settings})
run(${CMAKE_COMMAND} --build ${work}/build)
run(${CMAKE_COMMAND} --install ${work}/build --prefix ${work}/installed)
if(NOT NAME STREQUAL "exported_library")
  run(${work}/build/consumer)
endif()
