#!/bin/sh
# Puts the root of the image into the folder $1: the libraries that Node and RDMA need, busybox for `sh` and its like, Node,
# and a user. Nothing that installs packages is in it. Runs in a Debian with Node; deploy/Containerfile calls it.
set -eu
root=$1
packages='libc6 libgcc-s1 libstdc++6 gcc-12-base busybox-static ibverbs-providers libibverbs1 librdmacm1 libnl-3-200 libnl-route-3-200'

mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64" "$root/var/lib/dpkg/status.d"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done

archives=$(mktemp -d)
cd "$archives"
apt-get update -qq
# shellcheck disable=SC2086 # One word is one package.
apt-get download -qq -o APT::Sandbox::User=root $packages
for archive in ./*.deb; do
  dpkg-deb --fsys-tarfile "$archive" | tar -x --keep-directory-symlink -C "$root"
  # Scanners of images find here what is installed.
  dpkg-deb --field "$archive" >"$root/var/lib/dpkg/status.d/$(dpkg-deb --field "$archive" Package)"
done
rm -r "$archives"

# Licences stay. The rest of the documents, and tables of other character sets, are half of these packages.
find "$root/usr/share/doc" ! -type d ! -name copyright ! -type l -delete
rm -rf "$root"/usr/share/man "$root"/usr/share/lintian "$root"/usr/share/locale "$root"/usr/lib/*/gconv
# What the chart, `env node` and the disk tier (fallocate) need, and what one who looks around in a container types; `kubectl cp` needs tar.
for name in sh env cat chmod cp date df du echo fallocate find free grep head hostname id ip kill ls mkdir mv nc netstat ps pwd rm sed sleep \
  sort tail tar test top uname wc; do
  ln -s busybox "$root/bin/$name"
done

mkdir -p "$root/usr/local/bin"
cp "$(command -v node)" "$root/usr/local/bin/node"

mkdir -p "$root/etc" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/run/meshcache" "$root/var/lib/meshcache" "$root/var/cache/meshcache"
chmod 1777 "$root/tmp"
chown 65532:65532 "$root/run/meshcache" "$root/var/lib/meshcache" "$root/var/cache/meshcache"
echo 'root:x:0:0:root:/root:/bin/sh
meshcache:x:65532:65532:meshcache:/var/lib/meshcache:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:
meshcache:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
