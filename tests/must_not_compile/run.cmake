# SOURCE holds two programs that differ in a line or two. The one without MUST_NOT_COMPILE compiles;
# the other does not, and the compiler's message matches the pattern in "// reason: PATTERN".
# Without SOURCE: precompiles the header into WORK, so that each check takes a moment.
if(COMPILER_ID STREQUAL "GNU")  # finds the precompiled form by its name
  set(precompiled ${WORK}/rag_retrieve.hpp.gch)
  set(command ${COMPILER} -std=c++20 -fsyntax-only -I ${WORK} -I ${INCLUDE})
else()
  set(precompiled ${WORK}/rag_retrieve.hpp.pch)
  set(command ${COMPILER} -std=c++20 -fsyntax-only -I ${INCLUDE} -include-pch ${precompiled})
endif()

if(NOT SOURCE)
  file(MAKE_DIRECTORY ${WORK})
  execute_process(COMMAND ${COMPILER} -std=c++20 -I ${INCLUDE} -x c++-header
                          ${INCLUDE}/rag_retrieve.hpp -o ${precompiled} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the header does not compile")
  endif()
  return()
endif()

execute_process(COMMAND ${command} ${SOURCE} ERROR_VARIABLE message RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the twin that is right does not compile:\n${message}")
endif()
execute_process(COMMAND ${command} -DMUST_NOT_COMPILE ${SOURCE}
                ERROR_VARIABLE message RESULT_VARIABLE status)
if(status EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles with MUST_NOT_COMPILE")
endif()
file(STRINGS ${SOURCE} reason REGEX "^// reason: ")
string(REPLACE "// reason: " "" reason "${reason}")
if(reason STREQUAL "" OR NOT message MATCHES "${reason}")
  message(FATAL_ERROR "refused, but not for the reason '${reason}':\n${message}")
endif()
