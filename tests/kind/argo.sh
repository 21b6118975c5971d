#!/usr/bin/env bash
# Argo Workflows on a cluster that up.sh made.
#
#   tests/kind/argo.sh NAME
#
# Argo comes from its published manifest. Where no container registry can be reached, SHOESTRING_ADDONS names a command that brings
# it, and the image of the S3 server, into the cluster instead: it is called with NAME and argo or seaweedfs. It brings them onto every
# node: the server's image, once this machine has it, goes only where the server does.
set -euo pipefail
cd "$(dirname "$0")"
name=$1
kubectl="kubectl --context kind-$name"
server=chrislusf/seaweedfs:4.48

if [[ -n ${SHOESTRING_ADDONS:-} ]]; then
  if docker image inspect "$server" >/dev/null 2>&1; then
    kind load docker-image --quiet --name "$name" --nodes "$name-control-plane" "$server" &
  else
    $SHOESTRING_ADDONS "$name" seaweedfs &
  fi
  s3=$!
  $SHOESTRING_ADDONS "$name" argo
  wait "$s3"
else
  $kubectl create namespace argo
  $kubectl apply --server-side -n argo -f https://github.com/argoproj/argo-workflows/releases/download/v3.7.3/install.yaml
fi
$kubectl apply --server-side --force-conflicts --field-manager shoestring -f argo.yaml
$kubectl -n argo rollout status deployment/workflow-controller --timeout 180s
