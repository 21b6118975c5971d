#!/usr/bin/env bash
# Install Argo Workflows on a cluster of create_cluster.sh.
#
#   tests/kind/install_argo.sh NAME
#
# Argo is installed from its published manifest. On a machine that reaches no container registry, set SHOESTRING_ADDONS to a command
# that brings Argo, and the image of the S3 server, into the cluster. It is called with NAME and `argo` or `seaweedfs`, and loads images
# onto every node. Once this machine has the S3 server's image, only the server's node gets it.
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
$kubectl apply --server-side --force-conflicts --field-manager shoestring -f argo_controller.yaml
$kubectl -n argo rollout status deployment/workflow-controller --timeout 180s
