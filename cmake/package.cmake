# cpack: a Debian package of libraries, headers, tools and manuals, and one of what needs MPI.
set(PACKAGES vkattn)
if(TARGET vkattn_mpi)
  list(APPEND PACKAGES vkattn-mpi)
endif()
set(VKATTN_CONTACT "vkattn maintainers <maintainers@vkattn.example>"
    CACHE STRING "Name and address of who answers for the Debian packages")

# Manuals and Debian's own changelog are compressed, without a name or a time inside.
find_program(GZIP gzip REQUIRED)
install(CODE "
  file(GLOB manuals \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1/vkattn*.1\")
  foreach(manual IN LISTS manuals)
    execute_process(COMMAND ${GZIP} -9nf \${manual} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()" ALL_COMPONENTS)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # or of SOURCE_DATE_EPOCH
foreach(package IN LISTS PACKAGES)
  set(component Unspecified)
  if(package STREQUAL vkattn-mpi)
    set(component mpi)
  endif()
  set(changelog ${PROJECT_BINARY_DIR}/debian/${package}/changelog)
  file(CONFIGURE OUTPUT ${changelog} @ONLY
       CONTENT "@package@ (@PROJECT_VERSION@) unstable; urgency=medium

  * What changed is told in CHANGELOG.md of vkattn.

 -- @VKATTN_CONTACT@  @date@
")
  execute_process(COMMAND ${GZIP} -9nf ${changelog} COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${changelog}.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
          COMPONENT ${component})
  install(FILES cmake/debian/${package}.overrides RENAME ${package}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME vkattn)
set(CPACK_PACKAGE_CONTACT "${VKATTN_CONTACT}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL Unspecified)
if(TARGET vkattn_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_NAME vkattn)
set(CPACK_DEBIAN_MPI_PACKAGE_NAME vkattn-mpi)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

# What is linked is found by dpkg-shlibdeps; the Vulkan loader is opened at run time.
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# Renews the loader's cache; cpack's own scripts, which cannot be turned off, do so once more.
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_DEPENDS libvulkan1)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_RECOMMENDS "mesa-vulkan-drivers | vulkan-icd")
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_SUGGESTS libvulkan-dev)
set(CPACK_DEBIAN_UNSPECIFIED_DESCRIPTION
    "Whole attention layers as Vulkan compute shaders, on any GPU or none:
the library with its headers and package files, the commands vkattn and
vkattn-mnist, their manual pages and bash completion.")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "vkattn (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_SUGGESTS mpi-default-bin)
set(CPACK_DEBIAN_MPI_DESCRIPTION
    "Attention layers on the Vulkan devices of several MPI ranks:
the library vkattn_mpi with its header and package files, the command
vkattn-mpi, its manual page and bash completion.")
include(CPack)
