#!/bin/bash
# disks.sh CDI WORK: in WORK/cdi and WORK/csi, the programs of CDI and of a CSI driver for local volumes. The sources of the
# driver and its sidecars lie beside CDI's source. CDI's programs for images need C, and are built in the tree of image.sh.
# Needs root. Mounts end with the script.
set -euo pipefail
source=$1 work=$2 tree=$2/tree
root=$(go env GOROOT)
cache=$(go env GOCACHE)
export GOFLAGS="-mod=vendor -buildvcs=false -p=2 -tags=netgo,osusergo" CGO_ENABLED=0
mkdir -p "$work/cdi/usr/bin" "$work/csi"
for driver in csi-driver-host-path external-{provisioner,resizer,snapshotter} node-driver-registrar; do
  (cd "$source/../$driver" && go build -ldflags "-s -w -X main.version=1" -o "$work/csi/" ./cmd/...)
done
cp "$source"/../external-snapshotter/client/config/crd/snapshot.*.yaml "$work/csi/"
cd "$source"
go build -ldflags "-s -w" -o "$work/cdi/usr/bin/" ./cmd/cdi-{operator,controller,apiserver,uploadproxy,cloner}
go build -ldflags "-s -w" -o "$work/" ./tools/manifest-generator
cp cmd/cdi-cloner/cloner_startup.sh "$work/cdi/usr/bin/"
if [ ! -e "$tree/usr/bin/nbdkit" ] || [ ! -e "$tree/usr/include/sqlite3.h" ]; then
  chroot "$tree" apt-get install -y -qq --no-install-recommends nbdkit libsqlite3-dev >/dev/null
fi
for folder in "$root" "$source" "$cache" "$work/cdi"; do
  mkdir -p "$tree$folder"
  mount --bind "$folder" "$tree$folder"
done
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
chroot "$tree" env PATH="$root/bin:$PATH" HOME=/root GOCACHE="$cache" GOTOOLCHAIN=local CGO_ENABLED=1 \
  go build -C "$source" -tags netgo,osusergo,libsqlite3 -ldflags "-s -w" -o "$work/cdi/usr/bin/" ./cmd/cdi-{importer,uploadserver} ./tools/cdi-image-size-detection
