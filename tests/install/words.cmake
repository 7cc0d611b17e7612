# Every option that the tools' help names is in their manual page and their completion.
#
#   cmake -D VKATTN=vkattn -D MNIST=vkattn-mnist -D SOURCE=root
#         [-D MPI_TOOL=vkattn-mpi] -P words.cmake
cmake_minimum_required(VERSION 3.25)

function(check PROGRAM HELP NAME)
  execute_process(COMMAND ${PROGRAM} ${HELP} OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${SOURCE}/docs/${NAME}.1 manual)
  file(READ ${SOURCE}/tools/completion/${NAME}.bash completion)
  string(REGEX MATCHALL "--[a-z][a-z-]*" options "${help}")
  list(REMOVE_DUPLICATES options)
  list(LENGTH options count)
  if(count LESS 5)
    message(FATAL_ERROR "${NAME}: ${count} options found in its help")
  endif()
  foreach(option IN LISTS options)
    string(SUBSTRING ${option} 1 -1 flag)
    if(NOT manual MATCHES "Fl ${flag}[^a-z-]")
      message(SEND_ERROR "docs/${NAME}.1 lacks ${option}")
    endif()
    if(NOT completion MATCHES "${option}[^a-z-]")
      message(SEND_ERROR "tools/completion/${NAME}.bash lacks ${option}")
    endif()
  endforeach()
  message("${NAME}: ${count} options")
endfunction()

check(${VKATTN} help vkattn)
check(${MNIST} --help vkattn-mnist)
check(${MNIST} "train;--help" vkattn-mnist)
if(MPI_TOOL)
  check(${MPI_TOOL} --help vkattn-mpi)
endif()
