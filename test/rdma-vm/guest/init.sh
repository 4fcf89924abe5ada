#!/bin/busybox sh
# First program of the virtual machine, in its initramfs: loads the modules, makes the host's file system (read-only) the
# root and goes on with agent.sh of the share, which is the only place that can be written to and lasts.
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do
  /bin/busybox insmod "/modules/$module" || echo "cannot load $module"
done < /modules/order
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro hostroot /root || echo 'no host root'
for folder in proc sys dev; do
  /bin/busybox mount -o move "/$folder" "/root/$folder"
done
/bin/busybox mkdir -p /root/dev/shm
/bin/busybox mount -t tmpfs shm /root/dev/shm
/bin/busybox mount -t tmpfs run /root/run
/bin/busybox mkdir -p /root/run/share /root/run/tmp /root/run/home
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none share /root/run/share || echo 'no share'
exec /bin/busybox switch_root /root /bin/sh /run/share/agent.sh
