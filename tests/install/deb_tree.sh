#!/bin/sh
# Installs the Debian package in a clean tree with what it depends on, lists the devices and checks a
# case there:
#
#   tests/install/deb_tree.sh vkattn_0.1.0_amd64.deb TREE
#
# TREE is what `debootstrap bookworm TREE` left, or for Debian 13's package `debootstrap trixie TREE`.
# As root, with the network that apt needs.
set -eu

package=$1
tree=$2
cp /etc/resolv.conf "$tree/etc/resolv.conf"
cp "$package" "$tree/tmp/vkattn.deb"
cp "$(dirname -- "$0")/../cases/seeds/seed004_self.safetensors" "$tree/tmp/case.safetensors"
chroot "$tree" env DEBIAN_FRONTEND=noninteractive sh -euc '
    apt-get -qq update
    apt-get -qq -y install /tmp/vkattn.deb
    dpkg -V vkattn
    vkattn version
    vkattn devices
    vkattn check /tmp/case.safetensors'
