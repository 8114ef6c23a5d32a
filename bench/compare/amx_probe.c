// Exits 0 where this machine lets programs use AMX. Some virtual machines advertise it and trap on
// its first use.
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
  const int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2), XSAVE component
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return 1;
  unsigned char config[64];
  memset(config, 0, sizeof config);
  config[0] = 1;  // palette
  for (int t = 0; t < 3; ++t) {
    config[16 + 2 * t] = 64;  // bytes a row
    config[48 + t] = 16;      // rows
  }
  _tile_loadconfig(config);
  _tile_zero(0);
  _tile_dpbssd(0, 1, 2);
  _tile_release();
  return 0;
}
