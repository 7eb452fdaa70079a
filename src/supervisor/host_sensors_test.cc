// HostSensors: fails if a counter of the kernel is read wrong, or one that is not there becomes a number.
#include "supervisor/host_sensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/test_folder.h"

namespace moraine {
namespace {

using namespace testing;

HostReading read(const TestFolder& tree) {
  return read_host(posix_file_system(), {.root = tree.path()});
}

TEST(HostSensors, WhatIsNotThereIsAbsent) {
  const TestFolder tree;
  const HostReading r = read(tree);
  EXPECT_EQ(r.memory_total, -1);
  EXPECT_EQ(r.memory_available, -1);
  EXPECT_EQ(r.memory_pressure, -1);
  EXPECT_EQ(r.oom_kills, -1);
  EXPECT_EQ(r.disk_free, -1);
  EXPECT_EQ(r.memory_folder_free, -1);
  EXPECT_EQ(r.edac_corrected, -1);
  EXPECT_EQ(r.edac_uncorrected, -1);
  EXPECT_EQ(r.temperature, -1);
  EXPECT_EQ(r.temperature_limit, -1);
  EXPECT_EQ(r.throttles, -1);
  EXPECT_TRUE(r.nics.empty());
}

TEST(HostSensors, WhatIsNoNumberIsAbsent) {
  const TestFolder tree;
  tree.write("proc/meminfo", "MemTotal: many kB\nMemAvailable:\n");
  tree.write("proc/pressure/memory", "some avg10=nan avg60=0.00\n");
  tree.write("proc/vmstat", "oom_kill\noom_kill_extra 4\n");
  tree.write("sys/devices/system/edac/mc/mc0/ce_count", "");
  tree.write("sys/class/thermal/thermal_zone0/temp", "-\n");
  const HostReading r = read(tree);
  EXPECT_EQ(r.memory_total, -1);
  EXPECT_EQ(r.memory_available, -1);
  EXPECT_EQ(r.memory_pressure, -1);
  EXPECT_EQ(r.oom_kills, -1);
  EXPECT_EQ(r.edac_corrected, -1);
  EXPECT_EQ(r.temperature, -1);
}

TEST(HostSensors, Memory) {
  const TestFolder tree;
  tree.write(
      "proc/meminfo",
      "MemTotal:       4000 kB\nMemFree:  1 kB\nMemAvailable:    3000 kB\nSwapTotal: 7 kB\n");
  tree.write("proc/pressure/memory",
             "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=3.00 avg60=0.00\n");
  tree.write("proc/vmstat", "pgfault 7\noom_kill 3\ndrop_pagecache 0\n");
  const HostReading r = read(tree);
  EXPECT_EQ(r.memory_total, 4000 * 1024);
  EXPECT_EQ(r.memory_available, 3000 * 1024);
  EXPECT_EQ(r.memory_pressure, 12.5);
  EXPECT_EQ(r.oom_kills, 3);
}

// A container may hide vmstat's counter, and has its own.
TEST(HostSensors, OomKillsOfTheOwnGroup) {
  TestFolder tree;
  tree.write("proc/vmstat", "pgfault 7\n");
  tree.write("proc/self/cgroup", "0::/job/one\n");
  tree.write("sys/fs/cgroup/job/one/memory.events", "low 0\noom 5\noom_kill 2\noom_group_kill 9\n");
  EXPECT_EQ(read(tree).oom_kills, 2);

  tree.clear();
  tree.write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/api/x\n0::/\n");
  tree.write("sys/fs/cgroup/memory/api/x/memory.oom_control",
             "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n");
  EXPECT_EQ(read(tree).oom_kills, 6);

  tree.write("proc/vmstat", "oom_kill 8\n");  // the whole machine's has it all
  EXPECT_EQ(read(tree).oom_kills, 8);
}

TEST(HostSensors, DiskAndMemoryFolder) {
  const TestFolder tree;
  const HostReading r = read_host(
      posix_file_system(),
      {.root = tree.path(), .run_folder = tree.path(), .memory_folder = tree.path() + "/absent"});
  EXPECT_GT(r.disk_free, 0);
  EXPECT_EQ(r.memory_folder_free, -1);
}

TEST(HostSensors, EdacIsTheSumOfControllers) {
  const TestFolder tree;
  tree.write("sys/devices/system/edac/mc/mc0/ce_count", "3\n");
  tree.write("sys/devices/system/edac/mc/mc0/ue_count", "0\n");
  tree.write("sys/devices/system/edac/mc/mc1/ce_count", "4\n");
  tree.write("sys/devices/system/edac/mc/power/ce_count", "100\n");
  const HostReading r = read(tree);
  EXPECT_EQ(r.edac_corrected, 7);
  EXPECT_EQ(r.edac_uncorrected, 0);  // shown, and none
}

TEST(HostSensors, Interfaces) {
  const TestFolder tree;
  tree.write("sys/class/net/lo/statistics/rx_errors", "9\n");
  tree.write("sys/class/net/bonding_masters", "\n");
  tree.write("sys/class/net/eth0/statistics/rx_errors", "2\n");
  tree.write("sys/class/net/eth0/statistics/tx_errors", "5\n");
  tree.write("sys/class/net/eth0/statistics/rx_dropped", "11\n");
  tree.write("sys/class/net/eth0/carrier", "1\n");
  tree.write("sys/class/net/eth0/carrier_changes", "4\n");
  tree.write("sys/class/net/eth1/carrier", "0\n");
  tree.write("sys/class/net/eth2/carrier", "");  // the kernel gives EINVAL: it is switched off
  tree.write("sys/class/net/eth3/mtu", "1500\n");
  const HostReading r = read(tree);
  ASSERT_EQ(r.nics.size(), 4u);
  EXPECT_EQ(r.nics[0].name, "eth0");
  EXPECT_EQ(r.nics[0].errors, 7);
  EXPECT_EQ(r.nics[0].dropped, 11);
  EXPECT_TRUE(r.nics[0].carrier);
  EXPECT_EQ(r.nics[0].carrier_changes, 4);
  EXPECT_FALSE(r.nics[1].carrier);
  EXPECT_FALSE(r.nics[2].carrier);
  EXPECT_TRUE(r.nics[3].carrier);  // not shown
  EXPECT_EQ(r.nics[3].errors, -1);
  EXPECT_EQ(r.nics[3].carrier_changes, -1);
}

TEST(HostSensors, HeatIsOfTheZoneNearestToItsLimit) {
  const TestFolder tree;
  const std::string zones = "sys/class/thermal/thermal_zone";
  tree.write(zones + "0/temp", "90000\n");  // hottest, no limit
  tree.write(zones + "1/temp", "60000\n");
  tree.write(zones + "1/trip_point_0_type", "passive\n");
  tree.write(zones + "1/trip_point_0_temp", "61000\n");
  tree.write(zones + "1/trip_point_1_type", "critical\n");
  tree.write(zones + "1/trip_point_1_temp", "100000\n");
  tree.write(zones + "2/temp", "70000\n");
  tree.write(zones + "2/trip_point_0_type", "critical\n");
  tree.write(zones + "2/trip_point_0_temp", "105000\n");
  tree.write(zones + "2/trip_point_1_type", "hot\n");
  tree.write(zones + "2/trip_point_1_temp", "95000\n");
  tree.write(zones + "3/temp", "20000\n");
  tree.write(zones + "3/trip_point_0_type", "critical\n");
  tree.write(zones + "3/trip_point_0_temp", "-274000\n");
  tree.write("sys/class/thermal/cooling_device0/temp", "200000\n");
  const HostReading r = read(tree);
  EXPECT_EQ(r.temperature, 70);
  EXPECT_EQ(r.temperature_limit, 95);
}

TEST(HostSensors, ThrottlesOfAllCores) {
  const TestFolder tree;
  const std::string cores = "sys/devices/system/cpu/";
  tree.write(cores + "cpu0/thermal_throttle/core_throttle_count", "1\n");
  tree.write(cores + "cpu10/thermal_throttle/core_throttle_count", "2\n");
  tree.write(cores + "cpu2/online", "1\n");
  tree.write(cores + "cpufreq/thermal_throttle/core_throttle_count", "50\n");
  EXPECT_EQ(read(tree).throttles, 3);
}

// Whatever this machine shows, reading it is no error.
TEST(HostSensors, ThisMachine) {
  const HostReading r = read_host(posix_file_system(), {.run_folder = "/"});
  EXPECT_GT(r.memory_total, 0);
  EXPECT_GT(r.disk_free, 0);
  EXPECT_LE(r.memory_available, r.memory_total);
}

}  // namespace
}  // namespace moraine
