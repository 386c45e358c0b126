#!/bin/bash
# guest.sh: in /guest, two container disks with Debian's kernel and busybox. The guest gets its address by DHCP and answers
# on port 80. The guest of the second disk ends after 20 seconds. Runs in the tree of image.sh.
set -euo pipefail
rm -rf /guest
mkdir -p /guest/initramfs/bin /guest/initramfs/modules /guest/iso
kernel=$(basename /lib/modules/*)
modprobe --show-depends --set-version "$kernel" virtio_net > /guest/modules
modprobe --show-depends --set-version "$kernel" virtio_pci >> /guest/modules
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
echo "the guest is up"
for word in $(cat /proc/cmdline); do
  case $word in end=*) sleep ${word#end=}; poweroff -f ;; esac
done
while :; do echo ready | nc -l -p 80; done
INIT
chmod +x /guest/initramfs/init
(cd /guest/initramfs && find . | cpio --quiet -o -H newc | gzip -1 > /guest/iso/initrd)
disk() {
  printf 'default linux\nlabel linux\nkernel /vmlinuz\ninitrd /initrd\nappend console=ttyS0 quiet %s\n' "$2" > /guest/iso/isolinux.cfg
  mkdir -p "/guest/$1/disk"
  xorriso -as mkisofs -quiet -isohybrid-mbr /usr/lib/ISOLINUX/isohdpfx.bin -b isolinux.bin -c boot.cat -no-emul-boot \
    -boot-load-size 4 -boot-info-table -o "/guest/$1/disk/guest.img" /guest/iso
}
disk guest ""
disk guest-that-ends end=20
