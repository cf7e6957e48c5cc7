#!/bin/busybox sh
# The first process of the virtual machine: mounts the root and starts what is to be run.
# The host's root comes through 9p, read-only; changes stay in memory, /tmp is on a disk.
export PATH=/bin
/bin/busybox --install -s /bin
fail() { echo "init: $1 failed"; poweroff -f; }
mkdir -p /proc /sys /dev /host /upper /root /state
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module" || fail "$module"; done < /modules/order
share="trans=virtio,version=9p2000.L,msize=512000"
mount -t 9p -o "ro,cache=loose,$share" host /host || fail "mount of the host's root"
mount -t 9p -o "$share" state /state || fail "mount of the state"
mount -t tmpfs -o mode=0755 upper /upper
mkdir -p /upper/changes /upper/work
mount -t overlay -o lowerdir=/host,upperdir=/upper/changes,workdir=/upper/work root /root ||
  fail "mount of the overlay"
for folder in proc sys dev run tmp; do mkdir -p "/root/$folder"; done
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t devtmpfs dev /root/dev
mkdir -p /root/dev/shm /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t devpts pts /root/dev/pts
mount -t tmpfs -o mode=0755 run /root/run
mkdir -p /root/run/lock /root/run/state
mount -t cgroup2 cgroup2 /root/sys/fs/cgroup || fail "mount of cgroup2"
mount --move /state /root/run/state
umount /proc /sys
exec switch_root /root /bin/sh /run/state/inside.sh
