#include "app/command_line.h"

namespace kvasir::app {

int Main(int, char**) { return 0; }

}  // namespace kvasir::app
