#!/bin/sh
# Installs Debian packages in a clean tree with what they depend on, lists the devices, checks a case and
# imports the Python package there:
#
#   tests/install/deb_tree.sh FOLDER TREE
#
# FOLDER holds the packages that dist.sh made, such as dist/debian-12; TREE is what `debootstrap bookworm TREE`
# left, or for Debian 13's packages `debootstrap trixie TREE`. As root, with the network that apt needs.
set -eu

packages=$1
tree=$2
cp /etc/resolv.conf "$tree/etc/resolv.conf"
rm -rf "$tree/tmp/vkattn"
mkdir "$tree/tmp/vkattn"
cp "$packages"/*.deb "$tree/tmp/vkattn/"
cp "$(dirname -- "$0")/../cases/seeds/seed004_self.safetensors" "$tree/tmp/case.safetensors"
chroot "$tree" env DEBIAN_FRONTEND=noninteractive sh -euc '
    apt-get -qq update
    cd /tmp/vkattn
    apt-get -qq -y install ./libvkattn0_*.deb ./vkattn_*.deb ./python3-vkattn_*.deb
    dpkg -V libvkattn0 vkattn python3-vkattn
    vkattn version
    vkattn devices
    vkattn check /tmp/case.safetensors
    python3 -c "
import numpy, vkattn
x = numpy.arange(4, dtype=numpy.float32).reshape(1, 1, 4, 1)
print(vkattn.attention(x, x, x, causal=True).ravel())"'
