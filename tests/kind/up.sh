#!/usr/bin/env bash
# A fresh kind cluster with three pools of nodes; needs docker, kind and kubectl. Then argo.sh, beside this file.
#
#   tests/kind/up.sh NAME
set -euo pipefail
cd "$(dirname "$0")"
name=$1

kind delete cluster --quiet --name "$name"  # what a killed run left
kind create cluster --quiet --name "$name" --image kindest/node:v1.34.4 --config cluster.yaml

# GPUs are a number in the node's status: there is no device, but the scheduler counts it.
kubectl --context "kind-$name" patch node "$name-worker3" --subresource=status --type=json -p '[
  {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "2"},
  {"op": "add", "path": "/status/allocatable/nvidia.com~1gpu", "value": "2"}]'
