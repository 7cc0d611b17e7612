# cmake --install: library, headers, tools, and what find_package and pkg-config read.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vkattn)
install(DIRECTORY include/vkattn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        PATTERN vkattn_mpi.h EXCLUDE)
install(TARGETS vkattn vkattn_io EXPORT vkattn-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
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

if(TARGET vkattn_mpi) # find_package(vkattn COMPONENTS mpi), vkattn_mpi.pc
  install(FILES include/vkattn/vkattn_mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/vkattn)
  install(TARGETS vkattn_mpi EXPORT vkattn-mpi-targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT vkattn-mpi-targets NAMESPACE vkattn:: DESTINATION ${package_dir})
  configure_file(cmake/vkattn_mpi.pc.in ${PROJECT_BINARY_DIR}/cmake/vkattn_mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/cmake/vkattn_mpi.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
