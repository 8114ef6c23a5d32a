#include "app/command_line.h"

int main(int argc, char** argv) { return kvasir::app::Main(argc, argv); }
