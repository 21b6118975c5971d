# Remove what no pod reads (test suites, headers, compiler tools) and compile the rest: pods are billed by the second.
set -eu
cd /opt/shoestring/lib/python3*/site-packages
find . -type d \( -name tests -o -path ./torch/test \) -prune -exec rm -rf {} +
rm -rf pyarrow/include torch/include torch/share torch/bin/protoc* torch/bin/*test* torch/bin/*Test
# Of CUDA: headers, what PyTorch does not load, and Triton, which compiles nothing in an image without a C compiler.
rm -rf nvidia/*/include nvidia/*/lib/libcusolverMg.so* nvidia/*/lib/libnvrtc.alt.so* triton triton-*.dist-info
find . -name '*.a' -delete
# torch's own tests have the syntax of later Python versions.
/opt/shoestring/bin/python3 -m compileall -q -j 0 -x torch/testing/_internal --invalidation-mode unchecked-hash .
