#!/bin/bash
# guest.sh: in /guest, two container disks with Debian's kernel and busybox. The guest gets its address by DHCP, and answers
# on port 80 with its uptime, its CPUs, its memory, its starts and the sectors of its last disk. It keeps the count of its
# starts on this disk, 48 MiB behind its beginning. The guest of the second disk ends after 20 seconds. Runs in the tree of
# image.sh.
set -euo pipefail
rm -rf /guest
mkdir -p /guest/initramfs/bin /guest/initramfs/modules /guest/iso
kernel=$(basename /lib/modules/*)
for module in virtio_net virtio_pci virtio_mem virtio_blk; do modprobe --show-depends --set-version "$kernel" "$module"; done > /guest/modules
number=100
awk '/^insmod/ {print $2}' /guest/modules | while read -r module; do
  number=$((number + 1))
  name=/guest/initramfs/modules/$number-$(basename "$module")
  cp "$module" "$name"
  case $name in *.xz) xz --decompress "$name" ;; esac
done
cp /bin/busybox /guest/initramfs/bin/
cp /boot/vmlinuz-"$kernel" /guest/iso/vmlinuz
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 /guest/iso/
cat > /guest/initramfs/init <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do insmod $module; done
ip link set lo up
ip link set eth0 up
printf '#!/bin/sh\n[ -z "$ip" ] || ip addr replace $ip/$mask dev eth0\n[ -z "$router" ] || ip route replace default via $router\n' > /lease
chmod +x /lease
udhcpc -i eth0 -s /lease -q -n -t 20 -T 1
disk=$(ls /sys/block | grep ^vd | tail -n 1)
starts=$(dd if=/dev/$disk bs=1M skip=48 count=1 2>/dev/null | head -c 8 | tr -dc 0-9)
starts=$((starts + 1))
printf '%-8s' $starts | dd of=/dev/$disk bs=1M seek=48 conv=notrunc,fsync 2>/dev/null
echo "the guest is up"
for word in $(cat /proc/cmdline); do
  case $word in end=*) sleep ${word#end=}; poweroff -f ;; esac
done
while :; do
  echo "up $(cut -d. -f1 /proc/uptime) cpus $(cat /sys/devices/system/cpu/present) memory $(awk '/MemTotal/ {print $2}' /proc/meminfo)" \
    "starts $starts sectors $(cat /sys/block/$disk/size)" | nc -l -p 80
done
INIT
chmod +x /guest/initramfs/init
(cd /guest/initramfs && find . | cpio --quiet -o -H newc | gzip -1 > /guest/iso/initrd)
disk() {
  printf 'default linux\nlabel linux\nkernel /vmlinuz\ninitrd /initrd\nappend console=ttyS0 quiet memhp_default_state=online %s\n' "$2" > /guest/iso/isolinux.cfg
  mkdir -p "/guest/$1/disk"
  xorriso -as mkisofs -quiet -isohybrid-mbr /usr/lib/ISOLINUX/isohdpfx.bin -b isolinux.bin -c boot.cat -no-emul-boot \
    -boot-load-size 4 -boot-info-table -o "/guest/$1/disk/guest.img" /guest/iso
}
disk guest ""
disk guest-that-ends end=20
