// A library in the place of NVIDIA's driver, for a cuDNN that makes kernels but runs none. It keeps
// each kernel's machine code in the folder SOYBEAN_CUDNN_KERNELS, and its name in the file `names`.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

const int NO_DEVICE = 100;
int n_kernels = 0;

std::string in_folder(const std::string &name) {
    return std::string(std::getenv("SOYBEAN_CUDNN_KERNELS")) + "/" + name;
}

template <typename T> T field(const char *image, int offset) {
    T value;
    std::memcpy(&value, image + offset, sizeof value);
    return value;
}

// Returns the bytes of an ELF file: the end of its last table of headers.
size_t size_of_elf(const char *image) {
    size_t programs = field<uint64_t>(image, 32) + field<uint16_t>(image, 54) * field<uint16_t>(image, 56);
    size_t sections = field<uint64_t>(image, 40) + field<uint16_t>(image, 58) * field<uint16_t>(image, 60);
    return programs > sections ? programs : sections;
}

} // namespace

#define FAILS(name) extern "C" int name() { return NO_DEVICE; }
FAILS(cuInit)
FAILS(cuCtxGetCurrent)
FAILS(cuCtxGetLimit)
FAILS(cuCtxPopCurrent)
FAILS(cuCtxPushCurrent)
FAILS(cuLaunchCooperativeKernel)
FAILS(cuLaunchKernel)
FAILS(cuLaunchKernelEx)
FAILS(cuLibraryLoadFromFile)
FAILS(cuLinkAddData)
FAILS(cuLinkComplete)
FAILS(cuLinkCreate)
FAILS(cuLinkDestroy)
FAILS(cuModuleGetFunction)
FAILS(cuModuleLoadData)
FAILS(cuModuleUnload)
FAILS(cuOccupancyMaxPotentialClusterSize)
FAILS(cuStreamGetCtx)
FAILS(cuTensorMapEncodeIm2col)
FAILS(cuTensorMapEncodeTiled)

extern "C" int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
extern "C" int cuDeviceGetCount(int *count) { *count = 1; return 0; }
extern "C" int cuDeviceGet(int *device, int number) { *device = number; return 0; }
extern "C" int cuGetErrorName(int, const char **text) { *text = "an error"; return 0; }
extern "C" int cuGetErrorString(int, const char **text) { *text = "an error"; return 0; }

extern "C" int cuLibraryLoadData(void **library, const char *image, ...) {
    *library = &n_kernels;
    std::string name = in_folder("kernel" + std::to_string(n_kernels++) + ".cubin");
    FILE *file = std::fopen(name.c_str(), "wb");
    std::fwrite(image, 1, size_of_elf(image), file);
    return std::fclose(file);
}

extern "C" int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    *kernel = library;
    FILE *file = std::fopen(in_folder("names").c_str(), "a");
    std::fprintf(file, "%s\n", name);
    return std::fclose(file);
}

extern "C" int cuKernelGetFunction(void **function, void *kernel) { *function = kernel; return 0; }
extern "C" int cuKernelSetAttribute(int, int, void *, int) { return 0; }
extern "C" int cuKernelGetAttribute(int *value, int, void *, int) { *value = 0; return 0; }
extern "C" int cuLibraryUnload(void *) { return 0; }
