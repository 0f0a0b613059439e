// What other people's headers define as macros: windows.h, sys/sysmacros.h, AssertMacros.h. The
// header must compile after them. Its standard headers come before (run.sh includes them first):
// these names break some of those, which is not ours to mend.
#define min(a, b) poisoned_min
#define max(a, b) poisoned_max
#define near
#define far
#define small char
#define interface struct
#define IN
#define OUT
#define ERROR 0
#define DELETE (0x00010000L)
#define STRICT 1
#define major(device) poisoned_major
#define minor(device) poisoned_minor
#define check(condition) poisoned_check
