// The part of NVRTC that `src/compile.rs` uses: kernels become a shared library, made by the C++ compiler. What it calls a cubin is that
// library with its length in front.
#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

struct Program { std::string source, log, image; };
static std::string read_file(const std::string &path) { std::ifstream in(path, std::ios::binary); std::stringstream s; s << in.rdbuf(); return s.str(); }

extern "C" {
int nvrtcVersion(int *major, int *minor) { *major = 13, *minor = 0; return 0; }
int nvrtcCreateProgram(void **program, const char *source, const char *, int, const char **, const char **) { *program = new Program{source, "", ""}; return 0; }
int nvrtcDestroyProgram(void **program) { delete (Program *)*program; return 0; }
int nvrtcCompileProgram(void *program, int count, const char **options) {
    Program &p = *(Program *)program;
    char folder[] = "/tmp/ropeway-emulate-XXXXXX";
    if (!mkdtemp(folder)) return 1;
    std::string base = folder, defines;
    for (int i = 0; i < count; i++)
        if (!strncmp(options[i], "-D", 2)) defines += std::string(" ") + options[i];
    std::ofstream(base + "/kernels.cpp") << "#define ROPEWAY_EMULATE\n#include \"" << getenv("ROPEWAY_EMULATOR") << "/threads.h\"\n" << p.source;
    const char *flags = getenv("ROPEWAY_EMULATOR_FLAGS");
    std::string command = std::string("env -u LD_PRELOAD c++ -std=c++17 -O1 -ffp-contract=off -w -shared -fPIC ") + (flags ? flags : "") + defines + " -o " + base + "/kernels.so " + base + "/kernels.cpp >" + base + "/log 2>&1";
    int failed = system(command.c_str());
    p.log = read_file(base + "/log");
    std::string library = read_file(base + "/kernels.so");
    uint64_t bytes = library.size();
    p.image = std::string((const char *)&bytes, 8) + library;
    for (const char *name : {"/kernels.cpp", "/kernels.so", "/log"}) unlink((base + name).c_str());
    rmdir(folder);
    return failed ? 6 : 0;
}
int nvrtcGetProgramLogSize(void *program, size_t *bytes) { *bytes = ((Program *)program)->log.size() + 1; return 0; }
int nvrtcGetProgramLog(void *program, char *log) { strcpy(log, ((Program *)program)->log.c_str()); return 0; }
int nvrtcGetCUBINSize(void *program, size_t *bytes) { *bytes = ((Program *)program)->image.size(); return 0; }
int nvrtcGetCUBIN(void *program, char *image) { auto &p = *(Program *)program; memcpy(image, p.image.data(), p.image.size()); return 0; }
const char *nvrtcGetErrorString(int) { return "the compiler's log says more"; }
}
