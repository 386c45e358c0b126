#!/bin/bash
# image.sh SOURCE WORK: in WORK/tree, the files of an image with Debian's libvirt and QEMU, and with KubeVirt's programs
# from SOURCE. In WORK/guest, the disk of a guest. Needs root. Mounts end with the script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$1 work=$2 tree=$2/tree
root=$(go env GOROOT)
mirror=$(awk '/^URIs/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources)
base=ca-certificates,gcc,libc6-dev,pkg-config,libvirt-dev,libnbd-dev
packages="qemu-system-x86 qemu-utils libvirt-daemon libvirt-daemon-driver-qemu libvirt-daemon-system libvirt-clients
  libcap2-bin nftables iproute2 procps busybox-static linux-image-cloud-amd64 xorriso isolinux syslinux-common cpio kmod
  xz-utils"
if [ ! -e "$tree/complete" ]; then
  rm -rf "$tree"
  debootstrap --variant=minbase --include="$base" trixie "$tree" "$mirror" >/dev/null
  cp /etc/resolv.conf "$tree/etc/"
  cp -r /etc/apt/apt.conf.d/. "$tree/etc/apt/apt.conf.d/"
  printf '#!/bin/sh\nexit 101\n' > "$tree/usr/sbin/policy-rc.d"  # no package starts a service
  chmod +x "$tree/usr/sbin/policy-rc.d"
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive chroot "$tree" sh -c 'apt-get update -qq && apt-get install -y -qq \
    --no-install-recommends "$@"' install $packages >/dev/null
  touch "$tree/complete"
fi

# With Go's own resolver in both halves of the build, the half with C finds nearly all packages that the other compiled.
export GOFLAGS="-mod=vendor -buildvcs=false -p=2 -tags=netgo,osusergo"
export CGO_ENABLED=0
echo "{\"Replace\": {\"$source/tools/vmherd/main.go\": \"$here/operator.go.txt\"}}" > "$work/overlay.json"
version="-s -w -X kubevirt.io/client-go/version.gitVersion=$(cat "$work/version")"
programs="operator api controller exportproxy chroot launcher-monitor tail probe freezer"
cd "$source"
go build -overlay "$work/overlay.json" -o "$work/install" ./tools/vmherd
# shellcheck disable=SC2086
go build -ldflags "$version" -o "$tree/usr/bin/" $(printf './cmd/virt-%s ' $programs) ./cmd/virt-launcher/libvirt-hook-client

cache=$(go env GOCACHE)  # in the same places as outside, the packages compiled before are found again
for folder in "$root" "$source" "$cache"; do
  mkdir -p "$tree$folder"
  mount --bind "$folder" "$tree$folder"
done
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
chroot "$tree" /bin/bash -euo pipefail -s -- "$source" "$root" "$cache" "$version" <<'CHROOT'
export PATH=$2/bin:$PATH HOME=/root GOCACHE=$3 GOTOOLCHAIN=local CGO_ENABLED=1
cd "$1"
go build -ldflags "$4" -o /usr/bin/ ./cmd/virt-launcher ./cmd/virt-handler
gcc -static -o /usr/bin/container-disk cmd/container-disk-v2alpha/main.c
cp cmd/virt-launcher/node-labeller/node-labeller.sh /usr/bin/
cp cmd/virt-launcher/qemu.conf cmd/virt-launcher/virtqemud.conf /etc/libvirt/
cp cmd/virt-launcher/nsswitch.conf /etc/
chmod -R a+rX /etc/libvirt
ln -sfn ../run /var/run  # virt-handler follows the link from outside, for the sockets of a migration
mkdir -p /etc/libvirt/hooks
ln -sf /usr/bin/libvirt-hook-client /etc/libvirt/hooks/qemu
chmod 777 /etc/libvirt/hooks  # virt-launcher makes the link again
setcap cap_net_bind_service=ep /usr/bin/virt-launcher-monitor
grep -q ^qemu: /etc/passwd || {
  echo qemu:x:107:107:user:/:/bin/bash >> /etc/passwd
  echo qemu:x:107: >> /etc/group
}
# Debian has libvirtd. KubeVirt looks for virtqemud and its socket.
printf '%s\n' '#!/bin/sh' 'run=/var/run/libvirt' 'mkdir -p $run' 'ln -sf libvirt-sock $run/virtqemud-sock' \
  'ln -sf libvirt-admin-sock $run/virtqemud-admin-sock' 'exec /usr/sbin/libvirtd "$@"' > /usr/sbin/virtqemud
chmod +x /usr/sbin/virtqemud /usr/bin/node-labeller.sh
chmod 777 /run
CHROOT
chroot "$tree" /bin/bash < "$here/guest.sh"
rm -rf "$work/guest"
mv "$tree/guest" "$work/guest"
