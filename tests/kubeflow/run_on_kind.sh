#!/usr/bin/env bash
# Create a kind cluster with Kubeflow Pipelines 2.17.0 from its published manifests, and Shoestring with invented prices and an S3
# server that loses its data; run the suite of this folder on it; delete the cluster. Needs docker, kind, kubectl, and a network that
# reaches GitHub and the registries of these images. SHOESTRING_KIND_KEEP=1 leaves the cluster.
#
#   tests/kubeflow/run_on_kind.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
cluster=shoestring-kubeflow version=2.17.0 port=8888
kubectl="kubectl --context kind-$cluster"
upstream=github.com/kubeflow/pipelines/manifests/kustomize
folder=$(mktemp -d)

finish() {
  kill "${forward:-}" 2>/dev/null || true
  rm -rf "$folder"
  [[ ${SHOESTRING_KIND_KEEP:-} == 1 ]] || kind delete cluster --quiet --name "$cluster"
}
trap finish EXIT

kind delete cluster --quiet --name "$cluster"
kind create cluster --name "$cluster" --image kindest/node:v1.34.4 --config tests/kind/cluster.yaml
$kubectl apply -k "$upstream/cluster-scoped-resources?ref=$version"
$kubectl wait --for condition=established --timeout 60s crd/applications.app.k8s.io
$kubectl apply -k "$upstream/env/platform-agnostic?ref=$version"

# The images of `make images`, and that of an author's stage.
package=$("$python" tests/engine_scenarios/own_package.py "$folder")
docker build --quiet --tag dedupe_rows:0.1.0 "$package"
"$python" -c 'from shoestring.config.world import IMAGES; print(IMAGES["base"], IMAGES["train"])' |
  xargs kind load docker-image --name "$cluster" dedupe_rows:0.1.0

kubectl kustomize --load-restrictor LoadRestrictionsNone tests/kubeflow/overlay | $kubectl apply --server-side --filename -
$kubectl --namespace kubeflow wait --for condition=available --timeout 900s deployment --all

$kubectl --namespace kubeflow port-forward service/ml-pipeline "$port:8888" >/dev/null &
forward=$!
export SHOESTRING_KFP=http://localhost:$port SHOESTRING_KFP_CONTEXT=kind-$cluster
until curl --silent --fail --output /dev/null "$SHOESTRING_KFP/apis/v2beta1/healthz"; do sleep 1; done
"$python" -m pytest -m kubeflow tests/kubeflow
