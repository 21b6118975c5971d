#!/usr/bin/env bash
# Create a new kind cluster with three node pools; needs docker, kind and kubectl. install_argo.sh is the next step.
#
#   tests/kind/create_cluster.sh NAME
set -euo pipefail
cd "$(dirname "$0")"
name=$1

kind delete cluster --quiet --name "$name"  # a cluster that an interrupted run left behind
kind create cluster --quiet --name "$name" --image kindest/node:v1.34.4 --config cluster.yaml

# GPUs are a number in the node's status: there is no device, but the scheduler counts it.
kubectl --context "kind-$name" patch node "$name-worker3" --subresource=status --type=json -p '[
  {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "2"},
  {"op": "add", "path": "/status/allocatable/nvidia.com~1gpu", "value": "2"}]'
