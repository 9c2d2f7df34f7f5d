#!/bin/sh
# Makes what controller and nodes of local-driver show each other: an authority and, of it, one
# certificate for the controller and one for each node.
#
#   certificates.sh FOLDER NODE...        DRIVER=local.csi.bitts.dev DAYS=365
#
# FOLDER gets ca.crt, ca.key, controller.{crt,key} and NODE.{crt,key}. Called again, it keeps the
# authority and makes certificates anew. Bring NODE.key to its node alone, and ca.key nowhere.
set -eu
umask 077

[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1
shift
driver=${DRIVER:-local.csi.bitts.dev}
days=${DAYS:-365}
mkdir -p "$folder"

key() {
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null
}

if [ ! -e "$folder/ca.key" ]; then
  key "$folder/ca.key"
  openssl req -x509 -new -key "$folder/ca.key" -out "$folder/ca.crt" -days 3650 -sha256 \
    -subj "/CN=local-driver" -addext "keyUsage=critical,keyCertSign,cRLSign"
fi

# issue FILE NAME EXTENDED_KEY_USAGE
issue() {
  key "$folder/$1.key.new"
  openssl req -new -key "$folder/$1.key.new" -subj "/" -out "$folder/$1.csr"
  printf 'subjectAltName=critical,DNS:%s\nextendedKeyUsage=%s\nkeyUsage=critical,digitalSignature\n' \
    "$2" "$3" >"$folder/$1.ext"
  openssl x509 -req -in "$folder/$1.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" \
    -CAcreateserial -days "$days" -sha256 -extfile "$folder/$1.ext" -out "$folder/$1.crt.new" 2>/dev/null
  mv "$folder/$1.key.new" "$folder/$1.key"
  mv "$folder/$1.crt.new" "$folder/$1.crt"
  rm "$folder/$1.csr" "$folder/$1.ext"
}

issue controller "controller.$driver" clientAuth
for node in "$@"; do
  issue "$node" "$node.nodes.$driver" serverAuth
done
