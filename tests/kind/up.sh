#!/usr/bin/env bash
# A fresh kind cluster with Argo Workflows, for tests/kind.
#
#   tests/kind/up.sh NAME
#
# Needs docker, kind and kubectl. A machine that reaches no container registry brings its own Argo: SHOESTRING_ARGO names a command
# that is called with the cluster's name in place of the published manifest.
set -euo pipefail
cd "$(dirname "$0")"
name=$1
kubectl="kubectl --context kind-$name"
argo_version=v3.7.3

kind delete cluster --quiet --name "$name"  # what a killed run left
kind create cluster --quiet --name "$name" --image kindest/node:v1.34.4 --config cluster.yaml --wait 120s

# GPUs are a number in the node's status: no device, but the scheduler counts it.
$kubectl patch node "$name-worker3" --subresource=status --type=json -p '[
  {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "2"},
  {"op": "add", "path": "/status/allocatable/nvidia.com~1gpu", "value": "2"}]'

if [[ -n ${SHOESTRING_ARGO:-} ]]; then
  $SHOESTRING_ARGO "$name"
else
  $kubectl create namespace argo
  $kubectl apply --server-side -n argo -f "https://github.com/argoproj/argo-workflows/releases/download/$argo_version/install.yaml"
fi
