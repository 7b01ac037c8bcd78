"""cpu.py FILE COMMAND...: runs the command and writes the CPU seconds that it took into FILE; ends with its status."""
import resource, subprocess, sys

status = subprocess.call(sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], 'w', encoding='utf-8') as f:
    f.write('%.0f\n' % (used.ru_utime + used.ru_stime))
sys.exit(status if status >= 0 else 128 - status)
