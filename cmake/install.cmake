# cmake --install: library, headers, tools, and what find_package and pkg-config read. Each rule names the
# package that Debian would have it in: lib, dev, tools (where none is named), mpi_lib, mpi_dev, mpi.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vkattn)
install(DIRECTORY include/vkattn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
        PATTERN vkattn_mpi.h EXCLUDE)
install(TARGETS vkattn vkattn_archive vkattn_io_archive EXPORT vkattn-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib NAMELINK_COMPONENT dev
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT lib)
install(EXPORT vkattn-targets NAMESPACE vkattn:: DESTINATION ${package_dir} COMPONENT dev)
configure_package_config_file(cmake/vkattn-config.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/vkattn-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/vkattn-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/vkattn-config.cmake
              ${PROJECT_BINARY_DIR}/cmake/vkattn-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# A relocatable .pc: its prefix counts from where it lies. Folders that are absolute stay there.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  set(pc_prefix "\${pcfiledir}/${pc_to_prefix}")
endif()
foreach(folder LIBDIR INCLUDEDIR)
  set(pc_${folder} ${CMAKE_INSTALL_${folder}})
  if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_${folder}})
    string(PREPEND pc_${folder} "\${prefix}/")
  endif()
endforeach()
configure_file(cmake/vkattn.pc.in ${PROJECT_BINARY_DIR}/cmake/vkattn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/vkattn.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

install(FILES ${PROJECT_BINARY_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
install(FILES CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
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
          COMPONENT mpi_dev)
  install(TARGETS vkattn_mpi EXPORT vkattn-mpi-targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi_lib NAMELINK_COMPONENT mpi_dev)
  install(EXPORT vkattn-mpi-targets NAMESPACE vkattn:: DESTINATION ${package_dir}
          COMPONENT mpi_dev)
  configure_file(cmake/vkattn_mpi.pc.in ${PROJECT_BINARY_DIR}/cmake/vkattn_mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cmake/vkattn_mpi.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT mpi_dev)
endif()
