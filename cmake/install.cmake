# cmake --install: library, headers, tools, and what find_package and pkg-config read.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vkattn)
install(DIRECTORY include/vkattn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        PATTERN vkattn_mpi.h EXCLUDE)
install(TARGETS vkattn vkattn_archive vkattn_io_archive EXPORT vkattn-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT vkattn-targets NAMESPACE vkattn:: DESTINATION ${package_dir})
configure_package_config_file(cmake/vkattn-config.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/vkattn-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/vkattn-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/vkattn-config.cmake
              ${PROJECT_BINARY_DIR}/cmake/vkattn-config-version.cmake DESTINATION ${package_dir})

# A relocatable .pc: its prefix counts from where it lies.
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/vkattn.pc.in ${PROJECT_BINARY_DIR}/cmake/vkattn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/vkattn.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES ${PROJECT_BINARY_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET vkattn_tool)
  install(FILES docs/vkattn.1 docs/vkattn-mnist.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES tools/completion/vkattn.bash RENAME vkattn
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES tools/completion/vkattn.zsh RENAME _vkattn
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES tools/completion/vkattn.fish
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  install(FILES tools/completion/vkattn-mnist.bash RENAME vkattn-mnist
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endif()

if(TARGET vkattn_mpi) # find_package(vkattn COMPONENTS mpi), vkattn_mpi.pc
  install(FILES include/vkattn/vkattn_mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/vkattn
          COMPONENT mpi)
  install(TARGETS vkattn_mpi EXPORT vkattn-mpi-targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi)
  install(EXPORT vkattn-mpi-targets NAMESPACE vkattn:: DESTINATION ${package_dir}
          COMPONENT mpi)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/vkattn-mpi RENAME copyright
          COMPONENT mpi)
  configure_file(cmake/vkattn_mpi.pc.in ${PROJECT_BINARY_DIR}/cmake/vkattn_mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cmake/vkattn_mpi.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT mpi)
endif()
