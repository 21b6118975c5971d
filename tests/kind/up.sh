#!/usr/bin/env bash
# A fresh kind cluster with Argo Workflows and three pools of nodes; needs docker, kind and kubectl.
#
#   tests/kind/up.sh NAME
#
# Argo comes from its published manifest. Where no container registry can be reached, SHOESTRING_ADDONS names a command that brings
# it, and the image of the S3 server, into the cluster instead: it is called with NAME argo seaweedfs.
set -euo pipefail
cd "$(dirname "$0")"
name=$1
kubectl="kubectl --context kind-$name"

kind delete cluster --quiet --name "$name"  # what a killed run left
kind create cluster --quiet --name "$name" --image kindest/node:v1.34.4 --config cluster.yaml

# GPUs are a number in the node's status: there is no device, but the scheduler counts it.
$kubectl patch node "$name-worker3" --subresource=status --type=json -p '[
  {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "2"},
  {"op": "add", "path": "/status/allocatable/nvidia.com~1gpu", "value": "2"}]'

if [[ -n ${SHOESTRING_ADDONS:-} ]]; then
  $SHOESTRING_ADDONS "$name" argo seaweedfs
else
  $kubectl create namespace argo
  $kubectl apply --server-side -n argo -f https://github.com/argoproj/argo-workflows/releases/download/v3.7.3/install.yaml
fi
$kubectl apply --server-side --force-conflicts --field-manager shoestring -f argo.yaml
$kubectl -n argo rollout status deployment/workflow-controller --timeout 180s
