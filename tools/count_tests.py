#!/usr/bin/env python3
"""count_tests.py JUNIT NAME - prints `passed failed skipped` of a ctest run; reasons of skips on fd 3."""
import os
import sys
import xml.etree.ElementTree as ET


def reason(case):
    lines = [s for s in (case.findtext("system-out") or "").splitlines() if s.strip()]
    marked = [s for s in lines if "skip" in s.lower()]
    return (marked or lines or ["(it says nothing)"])[-1].strip()


def main():
    path, name = sys.argv[1:3]
    passed = failed = skipped = 0
    with os.fdopen(3, "w") as notes:
        for case in ET.parse(path).getroot().iter("testcase"):
            status = case.get("status")
            if case.find("failure") is not None or status == "fail":
                failed += 1
            elif status == "run":
                passed += 1
            elif case.find("skipped") is not None and "SKIP_RETURN_CODE" in (
                    case.find("skipped").get("message") or ""):
                skipped += 1
                notes.write(f"skip  {name}: {case.get('name')}: {reason(case)}\n")
            else: # a program that could not be found or started is no skip
                failed += 1
                notes.write(f"      {name}: {case.get('name')} did not run\n")
    print(passed, failed, skipped)


main()
