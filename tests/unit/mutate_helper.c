/* mutate_helper.c - the fuzzers' mutations (fuzz/mutate_driver.h), for the unit tests. */
#include "fuzz/mutate_driver.c" /* one implementation */
