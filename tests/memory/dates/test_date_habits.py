"""A sentence about a habit keeps its relative dates; one about a single time gets calendar dates."""

from __future__ import annotations

import datetime

import pytest

from sevenfold.memory.consolidation.dates import resolve_dates
from sevenfold.memory.dates.relative import make_dates_absolute

TUESDAY = datetime.datetime(2026, 11, 3, 12).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "Deploys happen on Friday evening.",
        "Standup is on Monday morning.",
        "The job cleans up yesterday's partitions.",
        "Cron job recomputes last month's totals.",
        "Rotate logs from last week every Monday.",
        "Deploys happen on Friday.",
        "We deploy on Friday evening.",
        "Standups are on Tuesday and Thursday.",
        "The retro is on Friday afternoon.",
        "Releases go out on Thursday morning.",
        "The nightly job deletes files from yesterday.",
        "The dashboard shows last week.",
        "The report covers last month and compares it with last year.",
        "The bot posts today's standup notes.",
        "Backups run on Sunday night.",
        "A script creates tomorrow's partitions.",
        "The nightly job removes unused partitions from yesterday.",
        "Every morning the pipeline imports the orders of yesterday.",
        "Usually we plan next week on Friday.",
        "The digest lists the incidents of last week.",
        "The scheduler prepares next month's invoices.",
        "The team meets on Wednesday afternoon.",
        "The query returns the orders created last week.",
        "Sprints begin on Monday.",
        "Office hours are on Thursday evening.",
        "The janitor sweeps yesterday's logs.",
        "Yesterday's numbers are never final.",
        "The view contains the rows of last quarter.",
        "每周一轮转上周的日志",
        "通常在周五发布",
        "定时任务重算上个月的总额",
        "脚本清理昨天的分区",
        "站会在周一，十点",
        "报表显示上周的数据",
        "日报汇总昨天的订单",
        "例会改为线上，一般在周三开会",
        "Invoices are sent on Friday evening.",
        "Tickets are triaged on Monday.",
        "Reports of yesterday are archived at midnight.",
        "The cleanup task drops data older than last month.",
        "The backup job keeps the files of last week.",
        "Payroll runs on Friday.",
        "On Monday morning we sync with sales.",
        "The cron job emails last week's errors to ops.",
        "Lunch and learn happens on Wednesday.",
        "The chart plots this month against last month.",
        "Our on-call rotation changes on Tuesday.",
        "Wednesday is no-meeting day.",
        "Never deploy on Friday.",
        "Don't deploy on Friday afternoon.",
        "Only merge on Thursday.",
        "发布一般在周四，凌晨",
        "备份任务保留上周的文件",
        "每天早上汇总昨天的告警",
        "看板显示本周的进度",
        "作业每晚删除前天的临时文件",
    ],
)
def test_a_habit_keeps_its_words(text: str) -> None:
    assert make_dates_absolute(text, TUESDAY) == text
    assert resolve_dates(text, TUESDAY) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The freeze is on Thursday.", "The freeze is on 2026-11-05."),
        ("Standup moved to Thursday.", "Standup moved to 2026-11-05."),
        ("The demo is on Friday morning.", "The demo is on 2026-11-06 morning."),
        ("Yesterday's outage was caused by a full disk.", "2026-11-02's outage was caused by a full disk."),
        (
            "We agreed yesterday that every PR needs a test.",
            "We agreed on 2026-11-02 that every PR needs a test.",
        ),
        (
            "We decided last week that the job cleans up after itself.",
            "We decided in the week of 2026-10-26 that the job cleans up after itself.",
        ),
        ("The job failed yesterday.", "The job failed on 2026-11-02."),
        ("The cron job broke last night.", "The cron job broke on the night of 2026-11-02."),
        (
            "Every customer will be migrated by next Friday.",
            "Every customer will be migrated by 2026-11-13.",
        ),
        ("The service shuts down next Friday.", "The service shuts down on 2026-11-13."),
        ("We ship 4.2 next Friday.", "We ship 4.2 on 2026-11-13."),
        ("We ship 4.2 on Friday.", "We ship 4.2 on 2026-11-06."),
        ("The audit begins on Monday.", "The audit begins on 2026-11-09."),
        ("Every test was red yesterday.", "Every test was red on 2026-11-02."),
        (
            "We found yesterday that the script deletes too much.",
            "We found on 2026-11-02 that the script deletes too much.",
        ),
        ("The deploy on Friday will be delayed.", "The deploy on 2026-11-06 will be delayed."),
        ("Last month's totals were wrong.", "2026-10's totals were wrong."),
        ("The release is due on Thursday.", "The release is due on 2026-11-05."),
        (
            "The sprint review will be on Monday morning.",
            "The sprint review will be on 2026-11-09 morning.",
        ),
        ("Tomorrow's release will be late.", "2026-11-04's release will be late."),
        ("The contract ends next month.", "The contract ends in 2026-12."),
        ("The review is on Monday.", "The review is on 2026-11-09."),
        ("The deploy failed on Monday.", "The deploy failed on 2026-11-02."),
        ("The report was sent last week.", "The report was sent in the week of 2026-10-26."),
        ("The beta launches tomorrow.", "The beta launches on 2026-11-04."),
        ("脚本昨天失败了", "脚本2026-11-02失败了"),
        ("定时任务上周改为每天运行", "定时任务2026-10-26那一周改为每天运行"),
        ("下周五上线", "2026-11-13上线"),
        ("昨天决定每个合并都要有测试了", "2026-11-02决定每个合并都要有测试了"),
        ("我们明天发布", "我们2026-11-04发布"),
        ("报表上周坏了", "报表2026-10-26那一周坏了"),
        ("The nightly build failed yesterday.", "The nightly build failed on 2026-11-02."),
        ("The daily report was late on Monday.", "The daily report was late on 2026-11-02."),
        ("The launch is scheduled for Friday.", "The launch is scheduled for 2026-11-06."),
        ("The office is closed tomorrow.", "The office is closed on 2026-11-04."),
        ("The API is deprecated since last month.", "The API is deprecated since 2026-10."),
        ("The migration starts on Monday.", "The migration starts on 2026-11-09."),
        ("Anna's interview is on Thursday.", "Anna's interview is on 2026-11-05."),
        ("We met on Monday.", "We met on 2026-11-02."),
        ("The exam is on Friday morning.", "The exam is on 2026-11-06 morning."),
        ("The report is due on Friday.", "The report is due on 2026-11-06."),
        ("Ship the beta by Friday.", "Ship the beta by 2026-11-06."),
        ("The retro was on Monday.", "The retro was on 2026-11-02."),
        ("The deadline was moved to next Tuesday.", "The deadline was moved to 2026-11-10."),
        ("We will deploy on Friday evening.", "We will deploy on 2026-11-06 evening."),
        ("上周的任务已经完成了", "2026-10-26那一周的任务已经完成了"),
        ("截止周五，报表必须交付", "截止2026-11-06，报表必须交付"),
        ("昨晚备份任务失败了", "2026-11-02晚上备份任务失败了"),
        ("下个月脚本将于15号停用", "2026年12月脚本将于15号停用"),
    ],
)
def test_a_single_time_gets_its_date(text: str, expected: str) -> None:
    assert make_dates_absolute(text, TUESDAY) == expected
