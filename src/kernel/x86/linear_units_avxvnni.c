/* linear_units_avxvnni.c - products with packed weights by AVX-VNNI: linear_units_avx2.h. */
#define UNITS_VNNI 1
#include "kernel/x86/linear_units_avx2.h"

void nb_linear_units_avxvnni(const nb_linear_args *a)
{
    linear_units(a, false);
}
void nb_linear_units8_avxvnni(const nb_linear_args *a)
{
    linear_units(a, true);
}
