# cpack: a Debian package of libraries, headers, tools and manuals, and one of what needs MPI.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME vkattn)
set(CPACK_PACKAGE_CONTACT "vkattn maintainers")
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
