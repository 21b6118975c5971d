# Remove what no pod reads (test suites, headers, compiler tools) and compile the rest: pods are billed by the second.
set -eu
cd /opt/shoestring/lib/python3*/site-packages
find . -type d \( -name tests -o -path ./torch/test \) -prune -exec rm -rf {} +
rm -rf pyarrow/include torch/include torch/share torch/bin/protoc* torch/bin/*test* torch/bin/*Test
find . -name '*.a' -delete
# torch's own tests have the syntax of later Python versions.
/opt/shoestring/bin/python3 -m compileall -q -j 0 -x torch/testing/_internal --invalidation-mode unchecked-hash .
