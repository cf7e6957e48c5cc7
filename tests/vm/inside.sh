# The second part of the start, in the root of the host: a disk, network, modules, the server.
. /run/state/environment
mkdir -p /lib/modules
mount --bind "$MODULES" /lib/modules
ln -s "$BUSYBOX" /run/modprobe # with which the kernel loads modules of its own accord
echo /run/modprobe > /proc/sys/kernel/modprobe
"$BUSYBOX" modprobe -a virtio_blk virtio_net veth bridge br_netfilter
mke2fs -q -F -t ext4 /dev/vda && mount /dev/vda /tmp && chmod 1777 /tmp
"$BUSYBOX" ip link set lo up
"$BUSYBOX" ip address add 10.0.2.15/24 dev eth0
"$BUSYBOX" ip link set eth0 up
# The root may have processes beside children with controllers; the kubelet expects all of these.
echo "+cpu +cpuset +io +memory +pids +hugetlb" > /sys/fs/cgroup/cgroup.subtree_control
exec "$PYTHON" -I -S /run/state/shell_server.py "$PORT"
