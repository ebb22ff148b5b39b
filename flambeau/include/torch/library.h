// Another name of torch/extension.h.
#pragma once
#include "extension.h"
